"""PyScript's entry: start the page, and put into words whatever stops it from starting."""

import traceback

import js

try:
    from daisychain.ui.app import main

    await main()  # noqa: F704 - PyScript runs this file with top-level await
except BaseException as error:
    js.daisychain._fail(str(error), traceback.format_exc())

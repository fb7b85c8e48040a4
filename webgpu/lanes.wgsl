// Threads of a workgroup that shares a row.

const ROW_LANES = 64u;
const LONG_ROW_LANES = 256u;

// Threads of a workgroup that shares a row, for adapters that run on a CPU: a barrier costs them about
// as much as a thousand operations for each group of four threads.

const ROW_LANES = 4u;
const LONG_ROW_LANES = 8u;

/** columnsOf puts changes into columns, as the contract has them. */
export function columnsOf(changes) {
  const columns = { lsn: [], time: [], id: [], key: [], document: [] };
  for (const name of ["op", "expired", "previous", "previous_lsn"]) {
    if (changes.some((c) => c[name] !== undefined)) columns[name] = [];
  }
  for (const [name, column] of Object.entries(columns)) column.push(...changes.map((c) => c[name] ?? null));
  return columns;
}

package cosmos

// The data actions of Azure's roles that requests need. The last is no data action: it
// belongs to the account's management, or to its keys.
const (
	actionMetadata = "Microsoft.DocumentDB/databaseAccounts/readMetadata"
	actionFeed     = containers + "readChangeFeed"
	actionQuery    = containers + "executeQuery"
	actionCreate   = containers + "items/create"
	actionRead     = containers + "items/read"
	actionReplace  = containers + "items/replace"
	actionUpsert   = containers + "items/upsert"
	actionDelete   = containers + "items/delete"
	actionManage   = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/write"

	containers = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/"
)

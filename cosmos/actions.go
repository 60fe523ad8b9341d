package cosmos

// The data actions of Azure's roles that requests need, for the error of a refused request: you grant a role by these
// names. actionManage is no data action but belongs to the account's management, which is why only keys can create
// containers here.
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

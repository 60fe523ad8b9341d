package function

import "time"

// An App is an Azure Functions app with a custom handler: the directory with host.json and a directory for each
// function. [ReadApp] reads an App from its files.
type App struct {
	// Dir is the directory of the app, an absolute path.
	Dir string

	// Program says how the app's custom handler is started (customHandler in host.json).
	Program Program

	// Timeout limits an invocation (functionTimeout in host.json). Zero is no limit; ReadApp sets 30 minutes by
	// default.
	Timeout time.Duration

	// UserAgentSuffix is sent to the account (extensions.cosmosDB.userAgentSuffix).
	UserAgentSuffix string

	// Functions are the functions with a Cosmos DB trigger, in the order of their names.
	Functions []Function
}

// A Program is the description of a custom handler. The texts are as host.json has them: names of variables between
// percent signs are replaced when the program starts, because the port of the handler is one of these variables.
type Program struct {
	Executable       string   // defaultExecutablePath: a file of the app, or a program of the system's path
	Arguments        []string // arguments
	WorkerPath       string   // defaultWorkerPath
	WorkerArguments  []string // workerArguments
	WorkingDirectory string   // below the directory of the app; empty is the directory itself

	// Start is how long the program may take until it answers (initializationTimeout; default 30 s).
	Start time.Duration
}

// A Function is a function with a Cosmos DB trigger.
type Function struct {
	Name    string // of its directory
	Trigger Trigger
	Outputs []Output
	Retry   *Retry // of function.json, or else of host.json; nil if there is none
}

// A Trigger is the binding cosmosDBTrigger of a function. Texts between percent signs have been replaced by the
// settings of the app.
type Trigger struct {
	Name string // the key of the batch in Data

	Database, Container string // the monitored container
	Connection          Connection

	LeaseDatabase, LeaseContainer string
	LeaseConnection               Connection
	LeasePrefix                   string // leaseContainerPrefix: the name of the processor; usually empty
	CreateLeases                  bool
	LeaseThroughput               int // RU/s of a lease container that is made; 0 is the default of the account

	Poll, Acquire, Expiration, Renew time.Duration // defaults are set

	MaxItems      int // 0 is a whole page
	FromBeginning bool
	FromTime      time.Time // zero if there is none
	Regions       []string  // preferredLocations
	AllVersions   bool      // changeFeedMode AllVersionsAndDeletes
}

// An Output is a cosmosDB output binding of a function: its documents are upserted one after the other.
type Output struct {
	Name                string // the key in Outputs, or $return
	Database, Container string
	Connection          Connection
	Create              bool   // createIfNotExists
	PartitionKey        string // path of the partition key of a container that is made
	IsBinary            bool   // dataType is binary: texts are not decoded from base64
}

// A Connection is an account, as the setting of its name describes it.
type Connection struct {
	Setting  string // the name of the setting
	Endpoint string // URL of the account
	Key      string // empty if an identity is used
}

// A Retry is the retry policy of a function.
type Retry struct {
	// Max is the number of retries after the first attempt; -1 is no limit.
	Max int

	// Fixed is the delay of the strategy fixedDelay.
	Fixed time.Duration

	// Least and Most are the delays of the strategy exponentialBackoff; both are zero with fixedDelay.
	Least, Most time.Duration

	// IsExponential says which of the strategies it is.
	IsExponential bool
}

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

	// Environ are the settings of the app for its program, each as NAME=VALUE: the environment, and what
	// local.settings.json adds to it.
	Environ []string

	// Notices are what the owner of the app has to know, such as functions that do not run here.
	Notices []string
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

	// Forwards is enableForwardingHttpRequest: the host of Azure follows no redirects then.
	Forwards bool
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
	Throughput          int    // RU/s of a container that is made; 0 is the default of the account
	Regions             []string
	IsBinary            bool // dataType is binary: texts are not decoded from base64
}

// A Connection is an account, as the setting of its name describes it.
type Connection struct {
	Setting  string   // the name of the setting
	Endpoint string   // URL of the account
	Key      string   // empty if an identity is used
	Identity Identity // if there is no Key
}

// String returns the connection without its secrets.
func (c Connection) String() string { return c.Endpoint + " of setting " + c.Setting }

// An Identity is an identity of Microsoft Entra ID. The zero value is that of the environment or of the machine.
type Identity struct {
	Kind       IdentityKind
	TenantID   string
	ClientID   string
	Secret     string // clientSecret
	ResourceID string // managedIdentityResourceId
	ObjectID   string // managedIdentityObjectId
	TokenFile  string // tokenFilePath
}

// String returns the kind of the identity, and no secret.
func (i Identity) String() string { return string(i.Kind) }

// IdentityKind says how an identity gets its tokens.
type IdentityKind string

// The kinds of identities.
const (
	IdentityDefault  IdentityKind = ""                 // of the environment, the machine or its user
	IdentityManaged  IdentityKind = "managedidentity"  // of the virtual machine or the pod
	IdentityWorkload IdentityKind = "workloadidentity" // of a workload in Kubernetes
	IdentitySecret   IdentityKind = "clientsecret"     // of an application with a secret
)

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

package function

// The members of function.json, and the names of extension 3.x, which the host of Azure ignores or cannot use. The
// advice for an earlier name says what extension 4.x has in its place.
var (
	functionKnown = []string{
		"bindings", "disabled", "retry",
		// of no effect for a custom handler
		"$schema", "configurationSource", "entryPoint", "generatedBy", "language", "scriptFile",
	}

	triggerKnown = []string{
		"changeFeedMode", "connection", "containerName", "createLeaseContainerIfNotExists", "dataType", "databaseName",
		"direction", "feedPollDelay", "leaseAcquireInterval", "leaseConnection", "leaseContainerName",
		"leaseContainerPrefix", "leaseDatabaseName", "leaseExpirationInterval", "leaseRenewInterval",
		"leasesContainerThroughput", "maxItemsPerInvocation", "name", "preferredLocations", "startFromBeginning",
		"startFromTime", "type",
	}

	outputKnown = []string{
		"connection", "containerName", "containerThroughput", "createIfNotExists", "dataType", "databaseName",
		"direction", "name", "partitionKey", "preferredLocations", "type",
	}

	triggerEarlier = map[string]string{
		"collectionname":                    "want containerName",
		"leasecollectionname":               "want leaseContainerName",
		"leasecollectionprefix":             "want leaseContainerPrefix",
		"createleasecollectionifnotexists":  "want createLeaseContainerIfNotExists",
		"leasescollectionthroughput":        "want leasesContainerThroughput",
		"connectionstringsetting":           "want connection",
		"leaseconnectionstringsetting":      "want leaseConnection",
		"checkpointinterval":                "want none: extension 4.x stores the position after each batch",
		"checkpointdocumentcount":           "want none: extension 4.x stores the position after each batch",
		"checkpointfrequency":               "want none: extension 4.x stores the position after each batch",
		"usemultiplewritelocations":         "want none: extension 4.x finds the regions itself",
		"leaseoptions":                      "want leaseContainerPrefix",
		"usedefaultjsonserialization":       "want none: extension 4.x has no such setting",
		"enablesplitsupport":                "want none: extension 4.x follows splits anyway",
		"maxitemcount":                      "want maxItemsPerInvocation",
		"leasesettings":                     "want leaseConnection and leaseContainerName",
		"createleasescollectionifnotexists": "want createLeaseContainerIfNotExists",
	}

	outputEarlier = map[string]string{
		"collectionname":              "want containerName",
		"connectionstringsetting":     "want connection",
		"collectionthroughput":        "want containerThroughput",
		"usemultiplewritelocations":   "want none: extension 4.x finds the regions itself",
		"usedefaultjsonserialization": "want none: extension 4.x has no such setting",
	}
)

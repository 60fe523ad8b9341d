package broker

// SecretVariable is the environment variable with the key that requests are signed with.
const SecretVariable = "CHANGEFEED_WEBHOOK_SECRET"

var openWebhook opener

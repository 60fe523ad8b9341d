package broker

import (
	"context"
	"os"

	"github.com/millrace/changefeed/outbox/webhookpub"
)

// SecretVariable is the environment variable with the key that requests are signed with.
const SecretVariable = "CHANGEFEED_WEBHOOK_SECRET"

func openWebhook(_ context.Context, address string, s Settings) (Publisher, error) {
	var o webhookpub.Options
	if secret := os.Getenv(SecretVariable); secret != "" {
		o.Secret = []byte(secret)
	} else if s.Warn != nil {
		s.Warn("requests to the webhook are not signed: set $" + SecretVariable)
	}
	return webhookpub.New(address, o)
}

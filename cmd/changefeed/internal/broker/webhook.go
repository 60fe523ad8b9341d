package broker

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/changefeed/outbox/webhookpub"
)

// SecretVariable is the environment variable with the key that signs requests: any text, or whsec_ and base64, as for
// Standard Webhooks.
const SecretVariable = "CHANGEFEED_WEBHOOK_SECRET"

func openWebhook(_ context.Context, address string, s Settings) (Publisher, error) {
	var o webhookpub.Options
	if text := os.Getenv(SecretVariable); text != "" {
		secret, err := webhookpub.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", SecretVariable, err)
		}
		o.Secret = secret
	} else if s.Warn != nil {
		s.Warn("requests to the webhook are not signed: set $" + SecretVariable)
	}
	return webhookpub.New(address, o)
}

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

// WebhookSecret returns the key that signs requests; nil if the environment has none.
func WebhookSecret() ([]byte, error) {
	text := os.Getenv(SecretVariable)
	if text == "" {
		return nil, nil
	}
	secret, err := webhookpub.ParseSecret(text)
	if err != nil {
		return nil, fmt.Errorf("$%s: %w", SecretVariable, err)
	}
	return secret, nil
}

func openWebhook(_ context.Context, address string, s Settings) (Publisher, error) {
	secret, err := WebhookSecret()
	if err != nil {
		return nil, err
	}
	if secret == nil && s.Warn != nil {
		s.Warn("requests to the webhook are not signed: set $" + SecretVariable)
	}
	return webhookpub.New(address, webhookpub.Options{Secret: secret})
}

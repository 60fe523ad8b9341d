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

// WebhookSecret returns the key that signs requests: the given key or, if that is empty, the key of the environment.
// The key is nil if there is none.
func WebhookSecret(given string) ([]byte, error) {
	from, text := "the secret of the webhook", given
	if text == "" {
		from, text = "$"+SecretVariable, os.Getenv(SecretVariable)
	}
	if text == "" {
		return nil, nil
	}
	secret, err := webhookpub.ParseSecret(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return secret, nil
}

func openWebhook(_ context.Context, address string, s Settings) (Publisher, error) {
	secret, err := WebhookSecret(s.Secret)
	if err != nil {
		return nil, err
	}
	if secret == nil && s.Warn != nil {
		s.Warn("requests to the webhook are not signed: set $" + SecretVariable)
	}
	return webhookpub.New(address, webhookpub.Options{Secret: secret})
}

package cosmos

import (
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Credentials only sign requests: they must not appear in errors, logs and texts, because more people may read those
// than may read the data.

// Credential identifies you to the account; [Key] and [Token] make credentials.
type Credential struct {
	key   string
	token azcore.TokenCredential
}

// Key is an account key in base64, as the portal shows it.
func Key(key string) Credential { return Credential{key: key} }

// Token is an identity of Microsoft Entra ID, from package azidentity for example. The identity needs a data plane role
// in the account; [Leases.SelfTest] names the actions that the role lacks.
func Token(credential azcore.TokenCredential) Credential { return Credential{token: credential} }

// String names the kind of credential and not the secret, because credentials may be logged.
func (c Credential) String() string {
	if c.token != nil {
		return "Entra ID identity"
	}
	return "account key"
}

// newSigner checks the key, so that Open and not every request reports an invalid key.
func (c Credential) newSigner(endpoint *url.URL) (rest.Signer, error) {
	if c.token != nil {
		return rest.Token(c.token, endpoint), nil
	}
	signer, err := rest.Key(c.key)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return signer, nil
}

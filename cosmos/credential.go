package cosmos

import (
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Credentials sign requests and nothing else: they are kept out of errors, logs and
// texts, which are read by more people than may read the data.

// Credential identifies the caller to the account; [Key] and [Token] make credentials.
type Credential struct {
	key   string
	token azcore.TokenCredential
}

// Key is an account key in base64, as the portal shows it.
func Key(key string) Credential { return Credential{key: key} }

// Token is an identity of Microsoft Entra ID, as package azidentity makes them. The
// identity needs a data plane role in the account; [Leases.SelfTest] names the actions
// that the role lacks.
func Token(credential azcore.TokenCredential) Credential { return Credential{token: credential} }

// String names the kind of credential and not the secret, because credentials end up in
// logs.
func (c Credential) String() string {
	if c.token != nil {
		return "Entra ID identity"
	}
	return "account key"
}

// newSigner checks the key, so that a wrong one is an error of Open and not of every request.
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

package main

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/program"
)

// The flag --token-from-program of run: the parent process lends an identity over the pipe.

// lentIdentity is the identity of the parent process.
type lentIdentity struct{ parent *program.Parent }

// GetToken implements [azcore.TokenCredential]. The account has a single scope.
func (l lentIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 {
		return azcore.AccessToken{}, errors.New("want one scope for a token of the parent process")
	}
	token, err := l.parent.Token(ctx, o.Scopes[0])
	return azcore.AccessToken{Token: token.Text, ExpiresOn: token.Expires}, err
}

// errNoTokens refuses a parent process whose hello offers no tokens.
var errNoTokens = errors.New("--token-from-program: " + contract.ErrNoTokens.Error())

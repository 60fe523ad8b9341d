package functions

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed/trigger/function"
)

// namedIdentity is an identity whose errors name the setting that describes it.
type namedIdentity struct {
	azcore.TokenCredential

	of function.Connection
}

// GetToken implements [azcore.TokenCredential].
func (n *namedIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := n.TokenCredential.GetToken(ctx, o)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("setting %s: Microsoft Entra ID gives no token: %w", n.of.Setting, err)
	}
	return token, err
}

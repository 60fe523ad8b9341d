package functions

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/trigger/function"
)

// loginOf returns the account of a connection, with the preferred regions of a binding.
func loginOf(app *function.App, c function.Connection, regions []string) (*place.Login, error) {
	l := &place.Login{
		From: "setting " + c.Setting, Endpoint: c.Endpoint, Key: c.Key, Regions: regions, Agent: app.UserAgentSuffix,
	}
	if c.Key != "" {
		return l, nil
	}
	identity, err := identityOf(c.Identity)
	if err != nil {
		return nil, fmt.Errorf("setting %s: find identity: %w", c.Setting, err)
	}
	l.Identity = &namedIdentity{identity, c}
	return l, nil
}

// identityOf returns the identity that the settings of a connection describe.
func identityOf(i function.Identity) (azcore.TokenCredential, error) {
	switch i.Kind {
	case function.IdentityManaged:
		o := &azidentity.ManagedIdentityCredentialOptions{}
		switch {
		case i.ClientID != "":
			o.ID = azidentity.ClientID(i.ClientID)
		case i.ResourceID != "":
			o.ID = azidentity.ResourceID(i.ResourceID)
		case i.ObjectID != "":
			o.ID = azidentity.ObjectID(i.ObjectID)
		}
		return azidentity.NewManagedIdentityCredential(o)
	case function.IdentityWorkload:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientID: i.ClientID, TenantID: i.TenantID, TokenFilePath: i.TokenFile,
		})
	case function.IdentitySecret:
		return azidentity.NewClientSecretCredential(i.TenantID, i.ClientID, i.Secret, nil)
	case function.IdentityDefault:
	}
	return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{TenantID: i.TenantID})
}

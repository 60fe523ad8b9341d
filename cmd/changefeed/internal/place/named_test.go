package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cosmosrest"
)

const (
	contosoURL  = "https://contoso.documents.azure.com"
	fabrikamURL = "https://fabrikam.documents.azure.com"
	localURL    = "http://127.0.0.1:8081"
)

// chooseFrom returns the choice of a context in a new file; without a name the choice of the current context, contoso.
func chooseFrom(t *testing.T, name string) contexts.Choice {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	text := `{"version": 1, "current": "contoso", "contexts": {
		"contoso": {"endpoint": "` + contosoURL + `", "key": {"secret": "Y3R4"}, "database": "shop"},
		"keyless": {"endpoint": "` + fabrikamURL + `"},
		"store": {"directory": "/data"}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if name == "" {
		return contexts.Choice{File: path}
	}
	return contexts.Choice{File: path, Name: name, By: "--context"}
}

// forgetAccounts makes the environment name no account, except in some variables.
func forgetAccounts(t *testing.T, except map[string]string) {
	t.Helper()
	for _, name := range []string{EndpointVariable, KeyVariable, ConnectionVariable, ServerKeyVariable} {
		t.Setenv(name, except[name])
	}
}

func TestAContextTakesItsPlaceAmongFlagsAndVariables(t *testing.T) {
	const connection = "AccountEndpoint=" + fabrikamURL + ":443/;AccountKey=c3Ry;"
	fabrikam := map[string]string{EndpointVariable: fabrikamURL, KeyVariable: "ZW52"}
	withString := map[string]string{ConnectionVariable: connection}
	withKey := map[string]string{KeyVariable: "ZW52"}
	withServerKey := map[string]string{ServerKeyVariable: "c2Vy"}
	withBoth := map[string]string{KeyVariable: "ZW52", ServerKeyVariable: "c2Vy"}
	serverAtFabrikam := map[string]string{EndpointVariable: fabrikamURL, ServerKeyVariable: "c2Vy"}
	stringAndKey := map[string]string{ConnectionVariable: connection, KeyVariable: "ZW52"}
	for name, tt := range map[string]struct {
		context       string
		flags         Settings
		env           map[string]string
		address       string
		endpoint, key string
	}{
		"current":                       {"", Settings{}, nil, "cosmos:d/c", contosoURL, "Y3R4"},
		"current, behind an endpoint":   {"", Settings{}, fabrikam, "cosmos:d/c", fabrikamURL, "ZW52"},
		"current, behind a string":      {"", Settings{}, withString, "cosmos:d/c", fabrikamURL + ":443/", "c3Ry"},
		"current, beside a key":         {"", Settings{}, withKey, "cosmos:d/c", contosoURL, "Y3R4"},
		"without a key, beside a key":   {"keyless", Settings{}, withKey, "cosmos:d/c", fabrikamURL, ""},
		"a key and another address":     {"", Settings{}, withKey, fabrikamURL + "/d/c", fabrikamURL, "ZW52"},
		"named, before the environment": {"contoso", Settings{}, fabrikam, "cosmos:d/c", contosoURL, "Y3R4"},
		"named, before a key":           {"contoso", Settings{}, withKey, "cosmos:d/c", contosoURL, "Y3R4"},
		"named, behind a flag": {
			"contoso",
			Settings{Key: "ZmxhZw=="},
			nil,
			"cosmos:d/c", contosoURL, "ZmxhZw==",
		},
		"another endpoint by flag": {
			"contoso",
			Settings{Endpoint: fabrikamURL},
			nil, "cosmos:d/c", fabrikamURL, "",
		},
		"another string by flag": {
			"contoso",
			Settings{Connection: connection},
			nil,
			"cosmos:d/c", fabrikamURL + ":443/", "c3Ry",
		},
		"its endpoint by flag": {
			"contoso",
			Settings{Endpoint: contosoURL + ":443"},
			nil, "cosmos:d/c", contosoURL + ":443", "Y3R4",
		},
		"its endpoint in the address":     {"", Settings{}, nil, contosoURL + "/d/c", contosoURL, "Y3R4"},
		"another endpoint in the address": {"contoso", Settings{}, nil, fabrikamURL + "/d/c", fabrikamURL, ""},
		"a store":                         {"store", Settings{}, fabrikam, "cosmos:d/c", fabrikamURL, "ZW52"},
		"the server's key, here":          {"", Settings{}, withServerKey, localURL + "/d/c", localURL, "c2Vy"},
		"the server's key, elsewhere":     {"", Settings{}, withServerKey, fabrikamURL + "/d/c", fabrikamURL, ""},
		"the server's key, by flag": {
			"",
			Settings{Endpoint: fabrikamURL},
			withServerKey, "cosmos:d/c", fabrikamURL, "c2Vy",
		},
		"the server's key, by context":  {"keyless", Settings{}, withServerKey, "cosmos:d/c", fabrikamURL, "c2Vy"},
		"the server's key, by variable": {"", Settings{}, serverAtFabrikam, "cosmos:d/c", fabrikamURL, "c2Vy"},
		"the server's key is the last":  {"", Settings{}, withBoth, localURL + "/d/c", localURL, "ZW52"},
		"the key belongs to the string": {"", Settings{}, stringAndKey, contosoURL + "/d/c", contosoURL, ""},
		"no key of a context on this host": {
			"contoso",
			Settings{},
			nil, localURL + "/d/c",
			localURL, cosmosrest.EmulatorKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			forgetAccounts(t, tt.env)
			tt.flags.Choice = chooseFrom(t, tt.context)
			a, err := Parse("ADDRESS", tt.address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tt.flags.findAccount(t.Context(), a)
			if got.Endpoint != tt.endpoint || got.key != tt.key || err != nil {
				t.Errorf("got %+v, %v, want %s and %s", got, err, tt.endpoint, tt.key)
			}
		})
	}
}

func TestAContainerOfAContextHasAName(t *testing.T) {
	withEndpoint := map[string]string{EndpointVariable: fabrikamURL}
	for _, tt := range []struct {
		context string
		flags   Settings
		env     map[string]string
		text    string
		want    string // address, or a part of the error
	}{
		{"", Settings{}, nil, "orders", contosoURL + "/shop/orders"},
		{"", Settings{}, nil, "ops/leases", contosoURL + "/ops/leases"},
		{"", Settings{}, nil, "docstore:d#c", "docstore:d#c"},
		{"store", Settings{}, nil, "orders", "docstore:/data#orders"},
		{"store", Settings{}, nil, "shop/orders", "docstore:/data#shop/orders"},
		{"keyless", Settings{}, nil, "orders", "context keyless has no database: want DATABASE/orders"},
		{
			"lost",
			Settings{},
			nil, "orders",
			`--context is "lost": there is no such context: want one of contoso, keyless, store`,
		},
		{"", Settings{}, withEndpoint, "shop/orders", "want cosmos:shop/orders for the account of $COSMOS_ENDPOINT"},
		{"store", Settings{}, withEndpoint, "orders", "docstore:/data#orders"},
		{
			"store",
			Settings{Endpoint: fabrikamURL},
			nil, "orders",
			"want cosmos:DATABASE/orders for the account of --endpoint",
		},
		{
			"store",
			Settings{Connection: "AccountEndpoint=" + fabrikamURL + "/;AccountKey=c3Ry;"},
			nil, "orders",
			"want cosmos:DATABASE/orders for the account of --connection-string",
		},
		{"", Settings{}, nil, "a/b/c", "want docstore:DIR#container"},
		{"", Settings{}, nil, "./orders", "want docstore:DIR#container"},
		{"", Settings{}, nil, "ftp://a", "want docstore:DIR#container"},
	} {
		forgetAccounts(t, tt.env)
		tt.flags.Choice = chooseFrom(t, tt.context)
		a, err := tt.flags.Parse("ADDRESS", tt.text)
		got := a.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s with context %q: got %s, want %s", tt.text, tt.context, got, tt.want)
		}
	}
}

func TestAWrongKeyIsBlamedOnWhereItCameFrom(t *testing.T) {
	for _, tt := range []struct {
		context string
		flags   Settings
		env     map[string]string
		want    string
	}{
		{"", Settings{Key: "b?d"}, nil, "--account-key: the account key is not base64"},
		{"", Settings{}, map[string]string{KeyVariable: "b?d"}, "$COSMOS_KEY: the account key is not base64"},
		{
			"",
			Settings{},
			map[string]string{ConnectionVariable: "b?d"},
			"$COSMOS_CONNECTION_STRING has no AccountEndpoint",
		},
		{
			"",
			Settings{Connection: "AccountEndpoint=" + localURL + ";AccountKey=b?d;"},
			nil, "--connection-string: the account key is not base64",
		},
		{"lost", Settings{}, nil, `--context is "lost"`},
	} {
		forgetAccounts(t, tt.env)
		tt.flags.Choice = chooseFrom(t, tt.context)
		a, err := Parse("ADDRESS", localURL+"/d/c")
		if err != nil {
			t.Fatal(err)
		}
		_, err = tt.flags.findAccount(t.Context(), a)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "b?d") {
			t.Errorf("got %v, want %s, and no key", err, tt.want)
		}
	}
}

// The certificate of a context opens no other account to whoever has made the certificate.
func TestACertificateIsForItsContextAlone(t *testing.T) {
	forgetAccounts(t, nil)
	path := filepath.Join(t.TempDir(), "config.json")
	text := `{"version": 1, "current": "contoso", "contexts": {
		"contoso": {"endpoint": "` + contosoURL + `", "ca": "/nowhere/ca.pem"}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Settings{Choice: contexts.Choice{File: path}}
	if _, err := s.makeTransport(contosoURL); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its own account: got %v, want that the certificate is missing", err)
	}
	if _, err := s.makeTransport(fabrikamURL); err != nil {
		t.Errorf("another account: %v", err)
	}
}

// A completion is not asked for by a person, who may have to unlock a program that keeps keys.
func TestACompletionRunsNoProgram(t *testing.T) {
	forgetAccounts(t, nil)
	path := filepath.Join(t.TempDir(), "config.json")
	text := `{"version": 1, "current": "a", "contexts": {"a": {"endpoint": "` + contosoURL + `",
		"key": {"command": ["no-such-program"]}}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Settings{Choice: contexts.Choice{File: path}, NoPrograms: true}
	_, err := f.findAccount(t.Context(), Address{})
	if err == nil || !strings.Contains(err.Error(), "no program is run") {
		t.Errorf("got %v", err)
	}
}

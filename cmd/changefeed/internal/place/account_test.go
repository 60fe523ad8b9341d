package place

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

func TestAKeyGoesToItsOwnAccountOnly(t *testing.T) {
	const (
		contoso  = "https://contoso.documents.azure.com"
		fabrikam = "https://fabrikam.documents.azure.com"
		local    = "http://127.0.0.1:8081"
		string1  = "AccountEndpoint=" + contoso + ":443/;AccountKey=c3Ry;"
	)
	type account struct{ endpoint, key string }
	for _, tt := range []struct {
		name    string
		flags   Settings
		env     map[string]string
		address string
		want    account
	}{
		{"nothing told", Settings{}, nil, contoso + "/d/c", account{contoso, ""}},
		{"the emulator", Settings{}, nil, local + "/d/c", account{local, cosmosrest.EmulatorKey}},
		{"flags", Settings{Endpoint: contoso, Key: "a2V5"}, nil, "cosmos:d/c", account{contoso, "a2V5"}},
		{"a key alone", Settings{Key: "a2V5"}, nil, fabrikam + "/d/c", account{fabrikam, "a2V5"}},
		{
			"a connection string",
			Settings{Connection: string1},
			nil, "cosmos:d/c",
			account{contoso + ":443/", "c3Ry"},
		},
		{"its own host", Settings{Connection: string1}, nil, contoso + "/d/c", account{contoso, "c3Ry"}},
		{"another host", Settings{Connection: string1}, nil, fabrikam + "/d/c", account{fabrikam, ""}},
		{
			"its own endpoint, by flag",
			Settings{Endpoint: contoso, Connection: string1},
			nil,
			"cosmos:d/c",
			account{contoso, "c3Ry"},
		},
		{
			"another endpoint",
			Settings{Endpoint: fabrikam, Connection: string1},
			nil, "cosmos:d/c",
			account{fabrikam, ""},
		},
		{
			"its own host, as a person writes it",
			Settings{Connection: string1},
			nil,
			"https://Contoso.documents.azure.com/d/c",
			account{"https://Contoso.documents.azure.com", "c3Ry"},
		},
		{
			"its own host by http",
			Settings{Connection: "AccountEndpoint=http://emulator:80/;AccountKey=c3Ry;"},
			nil,
			"http://emulator/d/c",
			account{"http://emulator", "c3Ry"},
		},
		{
			"endpoint by flag, environment for another",
			Settings{Endpoint: fabrikam},
			map[string]string{EndpointVariable: contoso, KeyVariable: "ZW52"},
			"cosmos:d/c",
			account{fabrikam, ""},
		},
		{
			"environment",
			Settings{},
			map[string]string{EndpointVariable: contoso, KeyVariable: "ZW52"},
			"cosmos:d/c",
			account{contoso, "ZW52"},
		},
		{
			"environment for another",
			Settings{},
			map[string]string{EndpointVariable: contoso, KeyVariable: "ZW52"},
			local + "/d/c",
			account{local, cosmosrest.EmulatorKey},
		},
		{
			"environment without endpoint",
			Settings{},
			map[string]string{KeyVariable: "ZW52"},
			local + "/d/c",
			account{local, "ZW52"},
		},
		{
			"endpoint by flag, key by environment",
			Settings{Endpoint: contoso},
			map[string]string{KeyVariable: "ZW52"},
			"cosmos:d/c",
			account{contoso, "ZW52"},
		},
		{
			"connection string of the environment",
			Settings{},
			map[string]string{ConnectionVariable: string1},
			"cosmos:d/c",
			account{contoso + ":443/", "c3Ry"},
		},
		{"the string's key, for another host", Settings{}, map[string]string{ConnectionVariable: string1}, local +
			"/d/c", account{local, cosmosrest.EmulatorKey}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forgetAccounts(t, tt.env)
			a, err := Parse("ADDRESS", tt.address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tt.flags.findAccount(t.Context(), a)
			if (account{got.Endpoint, got.key}) != tt.want || err != nil {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// fixedToken is an identity.
type fixedToken struct{ asked []string }

// GetToken notes what it is asked for.
func (f *fixedToken) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	f.asked = append(f.asked, o.Scopes...)
	return azcore.AccessToken{Token: "a.b.c", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestAnIdentitySignsWithItsToken(t *testing.T) {
	identity := &fixedToken{}
	endpoint := &url.URL{Scheme: "https", Host: "contoso.documents.azure.com:443"}
	a := Account{credentials: credentials{Endpoint: endpoint.String() + "/"}, signer: rest.Token(identity, endpoint)}
	r, err := a.signedRequest(t.Context(), "GET", []string{"dbs", "my shop"}, "colls", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.URL.String(); got != "https://contoso.documents.azure.com:443/dbs/my%20shop/colls" {
		t.Errorf("got %s, want the containers of the database", got)
	}
	if got, err := url.QueryUnescape(r.Header.Get("Authorization")); got != "type=aad&ver=1.0&sig=a.b.c" || err != nil {
		t.Errorf("got authorization %q, %v, want the token", got, err)
	}
	if r.ContentLength != 0 {
		t.Errorf("the request has a body of %d bytes, want none of a GET", r.ContentLength)
	}
	if got := strings.Join(identity.asked, " "); got != "https://contoso.documents.azure.com/.default" {
		t.Errorf("got scope %s, want that of the account", got)
	}
}

func TestRefusalsAreToldInOneLine(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{`{"code":"NotFound","message":"Message: {\"Errors\":[\"no such thing\"]}\r\nActivityId: 1"}`, "no such thing"},
		{`{"code":"Unauthorized","message":"the signature is wrong\r\nActivityId: 1"}`, "the signature is wrong"},
		{`<html>`, `"<html>"`},
	} {
		if got := refusalOf([]byte(tt.body)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// silent is a server that takes requests and answers none.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestARequestThatNobodyAnswersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer, err := rest.Key(cosmosrest.EmulatorKey)
		if err != nil {
			t.Fatal(err)
		}
		a := Account{
			credentials: credentials{Endpoint: "http://account.example"}, signer: signer,
			http: &http.Client{Transport: silent{}},
		}
		begun := time.Now()
		err = a.call(t.Context(), http.MethodGet, nil, "dbs", nil, new(struct{}))
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
			t.Errorf("%v after %v, want the end of its time within a minute", err, took)
		}
	})
}

// What was given for https is not sent without encryption, except within this machine.
func TestAKeyForHTTPSIsNotSentByHTTP(t *testing.T) {
	for _, tt := range []struct {
		given, endpoint string
		want            bool
	}{
		{"https://contoso.example", "http://contoso.example:443", false},
		{"http://contoso.example:443", "https://contoso.example", false},
		{"https://contoso.example:443/", "https://Contoso.example", true},
		{"http://contoso.example", "http://contoso.example:80", true},
		{"https://127.0.0.1:8081/", "http://127.0.0.1:8081", true},
		{"", "http://127.0.0.1:8081", false},
	} {
		if got := sameHost(tt.given, tt.endpoint); got != tt.want {
			t.Errorf("%s and %s: got %v, want %v", tt.given, tt.endpoint, got, tt.want)
		}
	}
}

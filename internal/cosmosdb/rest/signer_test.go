package rest

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// The example of the service's documentation.
const (
	exampleKey  = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw=="
	exampleDate = "Thu, 27 Apr 2017 00:51:12 GMT"
	exampleAuth = "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D"
)

func TestAKeySignsAsTheServiceDocumentsIt(t *testing.T) {
	s, err := Key(exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Sign(t.Context(), "GET", At("dbs", "ToDoList"), exampleDate)
	if err != nil || got != exampleAuth {
		t.Errorf("sign = %s, %v, want %s", got, err, exampleAuth)
	}
	other, err := s.Sign(t.Context(), "GET", At("dbs", "todolist"), exampleDate)
	if err != nil || other == exampleAuth {
		t.Errorf("the case of an id does not count: %v", err)
	}
}

func TestWhatIsSignedOfAPath(t *testing.T) {
	for _, c := range []struct {
		at               Resource
		kind, link, path string
	}{
		{At(), "", "", ""},
		{At("dbs"), "dbs", "", "/dbs"},
		{At("dbs", "My Db"), "dbs", "dbs/My Db", "/dbs/My%20Db"},
		{At("dbs", "d", "colls"), "colls", "dbs/d", "/dbs/d/colls"},
		{At("dbs", "d", "colls", "C"), "colls", "dbs/d/colls/C", "/dbs/d/colls/C"},
		{At("dbs", "d", "colls", "C", "docs"), "docs", "dbs/d/colls/C", "/dbs/d/colls/C/docs"},
		{
			At("dbs", "d", "colls", "C", "docs", "a/b%ü=="), "docs", "dbs/d/colls/C/docs/a/b%ü==",
			"/dbs/d/colls/C/docs/a%2Fb%25%C3%BC==",
		},
		{At("dbs", "d", "colls", "C", "pkranges"), "pkranges", "dbs/d/colls/C", "/dbs/d/colls/C/pkranges"},
	} {
		if c.at.Kind != c.kind || c.at.Link != c.link || c.at.Raw != c.path {
			t.Errorf("kind %q, link %q, path %q: want %q, %q, %q", c.at.Kind, c.at.Link, c.at.Raw, c.kind, c.link,
				c.path)
		}
	}
}

// identity gives tokens that hold for an hour.
type identity struct {
	calls  int
	scopes []string
	err    error
}

func (i *identity) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.calls++
	i.scopes = o.Scopes
	return azcore.AccessToken{Token: "a.b+c", ExpiresOn: time.Now().Add(time.Hour)}, i.err
}

func TestATokenIsKeptUntilShortlyBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := &identity{}
		s := Token(id, &url.URL{Scheme: "https", Host: "contoso.documents.azure.com:443"})
		sign := func(after time.Duration, calls int, fails bool) {
			t.Helper()
			time.Sleep(after)
			got, err := s.Sign(t.Context(), "GET", At(), "")
			if (err != nil) != fails || id.calls != calls {
				t.Errorf("sign = %s, %v after %d calls, want %d", got, err, id.calls, calls)
			}
			if err == nil && got != "type%3Daad%26ver%3D1.0%26sig%3Da.b%2Bc" {
				t.Errorf("sign = %s", got)
			}
		}
		sign(0, 1, false)
		sign(50*time.Minute, 1, false)
		sign(6*time.Minute, 2, false)
		id.err = errors.New("identity is away")
		sign(56*time.Minute, 3, false) // the old one still holds
		sign(5*time.Minute, 4, true)
		if len(id.scopes) != 1 || id.scopes[0] != "https://contoso.documents.azure.com/.default" {
			t.Errorf("scopes are %v", id.scopes)
		}
	})
}

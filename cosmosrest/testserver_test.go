package cosmosrest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
)

func TestATestServerAnswers(t *testing.T) {
	for name, o := range map[string]TestOptions{
		"http":  {},
		"https": {TLS: true},
		"key":   {Options: Options{Keys: Keys{Primary: testKey("a")}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := StartTestServer(t, o)
			if _, err := s.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/dbs/shop", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
			r.Header.Set("Authorization", sign(t, s.Key, r))
			answer, err := s.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("status %s, want 200", answer.Status)
			}
			if want := "AccountEndpoint=" + s.URL + "/;AccountKey=" + s.Key + ";"; s.ConnectionString() != want {
				t.Errorf("connection string %q, want %q", s.ConnectionString(), want)
			}
		})
	}
}

func TestATestServerEndsWithItsTest(t *testing.T) {
	var s *TestServer
	t.Run("test", func(t *testing.T) { s = NewTestServer(t) })
	answer, err := http.Get(s.URL)
	if err == nil {
		answer.Body.Close()
		t.Errorf("%s still answers: %s", s.URL, answer.Status)
	}
	if _, err := s.DB.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}}); err == nil || !strings.Contains(err.Error(), docstore.ErrClosed.Error()) {
		t.Errorf("create container: %v, want %v", err, docstore.ErrClosed)
	}
}

package cosmosrest

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/millrace/changefeed/docstore"
)

func TestABackupOverHTTPIsAStore(t *testing.T) {
	w, cont := newContainer(t, Options{})
	if _, err := cont.Upsert(t.Context(), []byte(`{"id":"a","pk":"p"}`)); err != nil {
		t.Fatal(err)
	}
	a := w.do(t, "GET", "/backup", nil, "").want(t, http.StatusOK)
	dir := filepath.Join(t.TempDir(), "copy")
	if err := docstore.ReceiveBackup(t.Context(), bytes.NewReader(a.body), dir); err != nil {
		t.Fatal(err)
	}
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	found, err := db.Container("db/c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := found.Item(t.Context(), `["p"]`, "a"); err != nil {
		t.Error(err)
	}
}

func TestACheckOverHTTPEndsWithWhatItFound(t *testing.T) {
	w, cont := newContainer(t, Options{})
	if _, err := cont.Upsert(t.Context(), []byte(`{"id":"a","pk":"p"}`)); err != nil {
		t.Fatal(err)
	}
	body := string(w.do(t, "GET", "/check", nil, "").want(t, http.StatusOK).body)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, `{"records":`) ||
		!strings.HasSuffix(last, `"done":true}`) {
		t.Errorf("the last line is %s", last)
	}
}

// A backup has no other sign of its failure than the status, and a check none but its last line.
func TestABackupThatCannotBeginIsRefusedAndACheckSaysWhatStoppedIt(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	w := serveStore(t, db, Options{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w.do(t, "GET", "/backup", nil, "").refused(t, http.StatusServiceUnavailable, "0", "ServiceUnavailable")
	var last checkState
	w.do(t, "GET", "/check", nil, "").want(t, http.StatusOK).into(t, &last)
	if !last.Done || !strings.Contains(last.Error, docstore.ErrClosed.Error()) {
		t.Errorf("the check of a closed store ends with %+v: want it to say that the store is closed", last)
	}
}

func TestBackupsAndChecksAreForFullKeys(t *testing.T) {
	key := newPair(t, "k", jwt.SigningMethodES256)
	w := newWorld(t, Options{
		Keys:   Keys{Primary: wellKnownKey, PrimaryReadOnly: testKey("r")},
		Tokens: tokensOf(t, contributor, key),
	})
	for _, path := range []string{"/backup", "/check"} {
		w.key = testKey("r")
		w.do(t, "GET", path, nil, "").refused(t, http.StatusForbidden, "0", "Forbidden")
		w.key = ""
		w.do(t, "GET", path, nil, "").refused(t, http.StatusUnauthorized, "0", "Unauthorized")
		w.do(t, "GET", path, map[string]string{"Authorization": key.bearer(t, nil)}, "").
			refused(t, http.StatusForbidden, "5300", "Forbidden")
		w.key = wellKnownKey
		w.do(t, "POST", path, nil, "{}").refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
	}
}

package deadletters_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// A letter of a later version is an error, in a file and in a container, and stays where it is.
func TestALetterOfALaterVersionIsRefused(t *testing.T) {
	written, err := deadletters.Marshal("mailer", parked(feed.Key("London"), 12))
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(written, []byte(`"version":1`), []byte(`"version":2`), 1)
	if bytes.Equal(later, written) {
		t.Fatalf("the letter %s has no version", written)
	}
	other := regexp.MustCompile(`"op":"\w+"`).ReplaceAll(later, []byte(`"op":"moved"`)) // may have what is unknown here
	if bytes.Equal(other, later) {
		t.Fatalf("the letter %s has no op", later)
	}
	later = other
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	line := later[:len(later)-1]
	sum := crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli))
	text := fmt.Sprintf("%s,\"crc\":\"%08x\"}\n", line, sum)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	box, err := deadletters.File(path, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, err := range box.Letters(t.Context(), feed.Key("London")) {
		if !errors.Is(err, deadletters.ErrNewer) || !strings.Contains(err.Error(), "version is 2: want 1 at most") {
			t.Errorf("a letter of version 2: %v", err)
		}
		refused++
	}
	if err := box.Close(); err != nil || refused != 1 {
		t.Errorf("%d letters were refused, %v", refused, err)
	}
	if left, err := os.ReadFile(path); string(left) != text {
		t.Errorf("the file has become %s, %v", left, err)
	}
	c := container(t, lettersSpec)
	document := fmt.Sprintf(`{"id":"mailer.RID=.12.0","key":"[\"London\"]","ttl":-1,"letter":%s}`, later)
	if _, err := c.Upsert(t.Context(), []byte(document)); err != nil {
		t.Fatal(err)
	}
	refused = 0
	for _, err := range opening(t, c, "mailer")().Letters(t.Context(), feed.Key("London")) {
		if !errors.Is(err, deadletters.ErrNewer) {
			t.Errorf("a letter of version 2 in a container: %v", err)
		}
		refused++
	}
	if refused != 1 {
		t.Errorf("%d letters of the container were refused", refused)
	}
}

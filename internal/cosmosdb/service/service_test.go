package service

import (
	"math"
	"strings"
	"testing"
)

// The client reads tokens of the service, of its emulator and of our server, and each of them has other ones.
func TestTokensOfASession(t *testing.T) {
	for token, want := range map[string]struct {
		partition string
		lsn       int64
	}{
		"0:42": {"0", 42}, "0:-1#42": {"0", 42}, "12:7#42": {"12", 42}, "0:-1#42#1=40#2=41": {"0", 42},
		" 0:-1#42 ": {"0", 42}, SessionToken("3", 99): {"3", 99},
	} {
		if partition, lsn, ok := Session(token); !ok || partition != want.partition || lsn != want.lsn {
			t.Errorf("%q: got %q, %d, %v, want %+v", token, partition, lsn, ok, want)
		}
	}
	for _, token := range []string{"", "42", "0:", ":42", ":-1#42", "0:x#42", "0:-1#", "0:-1#x", "0:4 2"} {
		if partition, lsn, ok := Session(token); ok {
			t.Errorf("%q: got %q, %d, want that it is none", token, partition, lsn)
		}
	}
}

func TestTokensOfAFeed(t *testing.T) {
	for token, want := range map[string]int64{`"42"`: 42, "42": 42, Token(0): 0, `"9223372036854775807"`: 1<<63 - 1} {
		if lsn, ok := LSN(token); !ok || lsn != want {
			t.Errorf("%s: got %d, %v, want %d", token, lsn, ok, want)
		}
	}
	for _, token := range []string{
		"", `""`, `"`, `"42`, "-1", `"-1"`, "4x", "9223372036854775808",
		`"18446744073709551615"`,
	} {
		if lsn, ok := LSN(token); ok {
			t.Errorf("%s: got %d, want that it is none", token, lsn)
		}
	}
}

// A negative number is no LSN: a token of it would be one that nobody takes back.
func TestANegativeLSNHasNoToken(t *testing.T) {
	for _, lsn := range []int64{-1, -42, math.MinInt64} {
		if token := Token(lsn); token != "" {
			got, ok := LSN(token)
			t.Errorf("the token after %d is %s, whose LSN is %d, %v: want no token", lsn, token, got, ok)
		}
	}
}

// What a user has written is no property of the system's, whatever it looks like.
func TestSystemPropertiesAreFoundAtTheEnd(t *testing.T) {
	s := System{Container: "dbs/d/colls/c/", RID: "r1==", ETag: `"e\1"`, Time: 1234567890}
	doc := append(s.Append([]byte(`{"id":"1","in":{"_rid":"mine","_etag":"mine"},`)), '}')
	const want = `{"id":"1","in":{"_rid":"mine","_etag":"mine"},` +
		`"_rid":"r1==","_self":"dbs/d/colls/c/docs/r1==/","_etag":"\"e\\1\"","_attachments":"attachments/","_ts":1234567890}`
	if string(doc) != want {
		t.Errorf("got  %s\nwant %s", doc, want)
	}
	for name, want := range map[string]string{
		"_rid": s.RID, "_etag": s.ETag, "_self": "dbs/d/colls/c/docs/r1==/",
		"_lost": "",
	} {
		if got := SystemText(doc, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name := range strings.FieldsSeq("_rid _self _etag _attachments _ts _lsn") {
		if !IsSystem(name) || IsSystem(name[1:]) || IsSystem([]byte(name+"_")) {
			t.Errorf("%s is the system's, and nothing that is like it", name)
		}
	}
}

// Members that a patch has added stand behind the system properties, and may look like them.
func TestSystemPropertiesAreFoundBeforeAddedMembers(t *testing.T) {
	for _, added := range []string{
		`"in":{"_rid":"mine","_etag":"mine"}`, `"s":"\"_etag\":\"mine\",\"_attachments\":\"attachments/"`,
		`"_attachments2":"attachments/"`, `"in":[{"_attachments":"attachments/","_ts":1}]`, `"n":1`,
		`"in":{"_rid":"mine","_etag":"mine"},"a,\"_attachments":"attachments/"`,
	} {
		for _, bare := range []bool{false, true} {
			s := System{Container: "dbs/d/colls/c/", RID: "r1==", ETag: `"e1"`, Time: -5, Added: []byte(added)}
			s.Bare = bare
			doc := append(s.Append([]byte(`{"id":"1",`)), '}')
			if len(doc) > len(`{"id":"1",}`)+s.Size() {
				t.Errorf("%s: larger than %d bytes", doc, s.Size())
			}
			if rid, etag := SystemText(doc, "_rid"), SystemText(doc, "_etag"); rid != s.RID || etag != s.ETag {
				t.Errorf("%s: _rid %q, _etag %q", doc, rid, etag)
			}
			if got := SystemText(doc, "_self") == ""; got != bare {
				t.Errorf("%s: _self is missing: %v", doc, got)
			}
			if !strings.HasSuffix(string(doc), ","+added+`,"_ts":-5}`) {
				t.Errorf("%s: want %s before _ts", doc, added)
			}
		}
	}
}

package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Resource tokens. A token contains the permission and the time of its end, signed with a key of the account. As in
// the service, nothing is looked up when a token is used, so a token counts until its end, even if its permission was
// deleted meanwhile.

// Permission is what a resource token allows.
type Permission struct {
	Database  string `json:"d"`
	Container string `json:"c"`
	Item      string `json:"i,omitempty"` // id; empty means the whole container
	Key       string `json:"k,omitempty"` // partition key, or its first levels; empty means all
	Write     bool   `json:"w,omitempty"` // otherwise only reads are allowed
	From      int64  `json:"f"`           // Unix seconds
	Until     int64  `json:"u"`           // Unix seconds
}

// tokenVersion separates the text of a token from the texts that are signed for other requests.
const tokenVersion = "resource token 1\n"

// IssueToken returns a resource token. There is always a read-write key, because only its owner can create
// permissions.
func (a *Authority) IssueToken(p Permission) string {
	content, _ := json.Marshal(p) // cannot fail
	text := base64.StdEncoding.EncodeToString(content)
	for _, key := range a.keys.keys {
		if key.who.all {
			return "type=resource&ver=1&sig=" + sealToken(key.secret, text) + ";" + text + ";"
		}
	}
	return ""
}

// sealToken returns the signature of a token's content.
func sealToken(secret []byte, text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(tokenVersion + text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// checkResourceToken returns the principal of a resource token.
func (a *Authority) checkResourceToken(token string, now time.Time) (Principal, error) {
	seal, text, _ := strings.Cut(strings.TrimSuffix(token, ";"), ";")
	if !slices.ContainsFunc(a.keys.keys, func(key masterKey) bool {
		return key.who.all && hmac.Equal([]byte(seal), []byte(sealToken(key.secret, text)))
	}) {
		return Principal{}, unauthorized(0, "The input authorization token can't serve the request. The resource "+
			"token was not issued with a key of this account: read the permission again")
	}
	content, err := base64.StdEncoding.DecodeString(text)
	p := new(Permission)
	if err == nil {
		err = json.Unmarshal(content, p)
	}
	if err != nil {
		return Principal{}, unauthorized(subBadHeader, "The resource token is damaged: %v", err)
	}
	if from, until := time.Unix(p.From, 0), time.Unix(p.Until, 0); !now.Before(until) {
		return Principal{}, outOfTime("want a newer one", from, until, now)
	}
	return Principal{token: p}, nil
}

// outOfTime returns the 403 of a signature or token that counts at another time, with the correction.
func outOfTime(want string, from, until, now time.Time) *wire.Error {
	e := wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden,
		"The authorization token is not valid at the current time: %s (token start time: %s, token "+
			"expiry time: %s, current server time: %s)", want,
		from.UTC().Format(http.TimeFormat), until.UTC().Format(http.TimeFormat), now.UTC().Format(http.TimeFormat))
	e.Bare = true
	return e
}

// allows reports whether the permission contains an action. The definition and the ranges of the container can be read
// with every token, because SDKs read them before the first item.
func (p *Permission) allows(action string, on Resource) bool {
	switch {
	case on.Account:
		return action == ReadMetadata
	case on.Database != p.Database || on.Container != p.Container:
		return false
	case action == ReadMetadata:
		return true
	case action == Manage: // changes or deletes the container itself
		return p.Write && p.Item == "" && p.Key == "" && on.Kind == "colls"
	case on.Plan && p.Item == "": // a plan contains no data
		return action == Query
	case p.Key != "" && on.Key != p.Key && !strings.HasPrefix(on.Key, strings.TrimSuffix(p.Key, "]")+","):
		return false
	case p.Item != "" && (on.Kind != "docs" || on.Item != p.Item):
		return false
	}
	return p.Write || slices.Contains(readerActions, action)
}

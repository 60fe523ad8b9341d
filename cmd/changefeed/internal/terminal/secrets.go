package terminal

import (
	"regexp"
	"strings"
)

// The secrets in URLs. The host follows the last @; a password that has a slash makes the URL invalid, and must not be
// shown in the error about that.
var (
	userInURL     = regexp.MustCompile(`://(?:[^\s/"']*|[^\s/"'@:]*:\d*[^\s/"'@\d][^\s"'@]*)@`)
	secretInQuery = regexp.MustCompile(`(?i)([?&;](?:sig|signature|key|accountkey|code|password|token)=)[^&;\s"']+`)
)

// WithoutSecrets returns a text whose URLs have neither a user and password, nor the value of a parameter that is a key
// or a signature.
func WithoutSecrets(text string) string {
	text = userInURL.ReplaceAllStringFunc(text, func(user string) string {
		if user == "://USER:PASSWORD@" || user == "://USER@" { // the form of an address in an error
			return user
		}
		return "://" + Ellipsis + "@"
	})
	return secretInQuery.ReplaceAllStringFunc(text, func(part string) string {
		name, secret, _ := strings.Cut(part, "=")
		if secret == "KEY" { // the form of a connection string in an error
			return part
		}
		return name + "=" + Ellipsis
	})
}

package wire

import "testing"

// A session token has the form of the version, from the first version with this form.
func TestSessionTokensOfAVersion(t *testing.T) {
	for version, want := range map[string]string{
		"2015-08-06": "7", "2015-12-16": "0:7", "2017-11-15": "0:7", "2018-06-18": "0:-1#7", "2020-07-15": "0:-1#7",
		"": "0:-1#7",
	} {
		if got := SessionToken(version, "0", 7); got != want {
			t.Errorf("version %q: the token is %s, want %s", version, got, want)
		}
	}
}

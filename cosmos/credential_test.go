package cosmos

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/millrace/changefeed/feed"
)

func TestAKeyThatIsNone(t *testing.T) {
	for _, key := range []string{"", "not base64!", "===="} {
		if _, err := Key(key).newSigner(nil); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("Key(%q): %v, want ErrBadRequest", key, err)
		}
	}
}

func TestACredentialIsNotPrinted(t *testing.T) {
	for c, want := range map[Credential]string{Key("c2VjcmV0"): "account key", Token(identity{}): "Entra ID identity"} {
		if text := fmt.Sprintf("%v, %+v, %s", c, c, c); text != strings.Join([]string{want, want, want}, ", ") {
			t.Errorf("a credential prints as %s, want %s", text, want)
		}
	}
}

type identity struct{ azcore.TokenCredential }

package cosmos

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/millrace/changefeed"
)

func TestAKeyThatIsNone(t *testing.T) {
	for _, key := range []string{"", "not base64!", "===="} {
		if _, err := Key(key).signer(nil); !errors.Is(err, changefeed.ErrBadRequest) {
			t.Errorf("Key(%q): %v, want ErrBadRequest", key, err)
		}
	}
}

func TestACredentialIsNotPrinted(t *testing.T) {
	for _, c := range []Credential{Key("c2VjcmV0"), Token(identity{})} {
		if text := fmt.Sprintf("%v %+v %s", c, c, c); strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "{") {
			t.Errorf("a credential prints as %s", text)
		}
	}
}

type identity struct{ azcore.TokenCredential }

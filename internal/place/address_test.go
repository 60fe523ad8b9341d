package place

import "testing"

func TestAddressesHaveThreeForms(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Address // without where and how it was given
	}{
		{"docstore:data#orders", Address{Dir: "data", Database: "default", Container: "orders"}},
		{"docstore:/my data/a#b#shop/orders", Address{Dir: "/my data/a#b", Database: "shop", Container: "orders"}},
		{"cosmos:shop/my orders", Address{Database: "shop", Container: "my orders"}},
		{"https://127.0.0.1:8081/shop/orders", Address{endpoint: "https://127.0.0.1:8081", Database: "shop", Container: "orders"}},
		{"http://[::1]:80/my%20shop/a%2Fb/", Address{endpoint: "http://[::1]:80", Database: "my shop", Container: "a/b"}},
	} {
		got, err := Parse("ADDRESS", tt.text)
		tt.want.Field, tt.want.Given = "ADDRESS", tt.text
		if got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestAContainerBesideAnother(t *testing.T) {
	a, err := Parse("--source", "https://127.0.0.1:8081/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	b := a.Beside("leases")
	if b.endpoint != a.endpoint || b.Name() != "shop/leases" {
		t.Errorf("got %+v, want shop/leases of the same server", b)
	}
}

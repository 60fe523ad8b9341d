package place

import (
	"strings"
	"testing"
)

func TestAddressesHaveThreeForms(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Address // without where and how it was given
	}{
		{"docstore:data#orders", Address{Dir: "data", Database: "default", Container: "orders"}},
		{"docstore:/my data/a#b#shop/orders", Address{Dir: "/my data/a#b", Database: "shop", Container: "orders"}},
		{"cosmos:shop/my orders", Address{Database: "shop", Container: "my orders"}},
		{"https://127.0.0.1:8081/shop/orders", Address{
			endpoint: "https://127.0.0.1:8081", Database: "shop",
			Container: "orders",
		}},
		{"http://[::1]:80/my%20shop/a%2Fb/", Address{
			endpoint: "http://[::1]:80", Database: "my shop",
			Container: "a/b",
		}},
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

func TestWrongAddressesAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "orders", "cosmos:orders", "cosmos:/orders", "cosmos:shop/", "cosmos:a/b/c",
		"docstore:data", "docstore:#orders", "docstore:data#", "docstore:data#a/b/c",
		"https:///shop/orders", "https://h/shop", "https://h/shop/orders/more", "https://h/shop/orders?x=1",
		"https://h/shop/orders#x", "https://me@h/shop/orders", "ftp://h/shop/orders",
	} {
		if a, err := Parse("ADDRESS", text); err == nil || !strings.HasSuffix(err.Error(), AddressForms) {
			t.Errorf("%q: %+v, %v, want an error with the forms of an address", text, a, err)
		}
	}
}

// A command shows addresses that its user can give to the next one.
func TestAnAddressReadsItsOwnText(t *testing.T) {
	for _, text := range []string{
		"docstore:/my data/a#b#shop/orders", "docstore:data#orders", "cosmos:shop/my orders",
		"https://h:8081/my%20shop/a%2Fb", "http://h/shop/a%3Fb",
	} {
		a, err := Parse("ADDRESS", text)
		if err != nil || a.String() != text {
			t.Errorf("%s is written %s, %v", text, a, err)
		}
	}
}

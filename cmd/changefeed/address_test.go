package main

import "testing"

func TestAddressesHaveThreeForms(t *testing.T) {
	for _, tt := range []struct {
		text string
		want address // without where and how it was given
	}{
		{"docstore:data#orders", address{dir: "data", database: "default", container: "orders"}},
		{"docstore:/my data/a#b#shop/orders", address{dir: "/my data/a#b", database: "shop", container: "orders"}},
		{"cosmos:shop/my orders", address{database: "shop", container: "my orders"}},
		{"https://127.0.0.1:8081/shop/orders", address{endpoint: "https://127.0.0.1:8081", database: "shop", container: "orders"}},
		{"http://[::1]:80/my%20shop/a%2Fb/", address{endpoint: "http://[::1]:80", database: "my shop", container: "a/b"}},
	} {
		got, err := parseAddress("ADDRESS", tt.text)
		tt.want.field, tt.want.given = "ADDRESS", tt.text
		if got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestAContainerBesideAnother(t *testing.T) {
	a, err := parseAddress("--source", "https://127.0.0.1:8081/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	b := a.beside("leases")
	if b.endpoint != a.endpoint || b.name() != "shop/leases" {
		t.Errorf("got %+v, want shop/leases of the same server", b)
	}
}

package sql

import (
	"fmt"
	"slices"
	"testing"
)

// The hashes are those that the .NET SDK's tests expect of it, written as it writes them: the last byte first.
func TestDistinctHashesAreThoseOfTheSDK(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{`null`, "898efbf2680daea39e24d6ae6653417d"},
		{`false`, "6e88aa4242f017b7705f12581a61118f"},
		{`true`, "cd4d51ab869f071ff019c3e4a55c0125"},
		{`""`, "a78446cf287029a585b395a161a2a9a1"},
		{`1234`, "a94bf61335c9fba42c28d7d9895d1434"},
		{`[]`, "7d54f729ff4a63ffa2ef3ca359538082"},
		{`[null]`, "3e8e8c77472338352f80ea6235fb6e41"},
		{`[[]]`, "51667c83ca3c85e958ec39854aee937c"},
		{`[null,false,true,1234,"asdfasdfasdfasdfasdfasdf"]`, "a9407916de27f316cc5a8e4eb9afd5e6"},
		{`{}`, "14b86a60aa01a7381438743e80b965d8"},
		{`{"prop":"asdfasdfasdfasdfasdfasdf"}`, "c0989334e194cace0241b28ffe97a7b3"},
		{
			`{"null":null,"false":false,"true":true,"cosmosNumber":1234,"cosmosString":"asdfasdfasdfasdfasdfasdf"}`,
			"3b6aa9f4f43aaec0e48ebe2bc020d55c",
		},
	} {
		b := distinctHash(documentValue([]byte(test.value))).bytes()
		slices.Reverse(b)
		if got := fmt.Sprintf("%x", b); got != test.want {
			t.Errorf("%s: hash %s, want %s", test.value, got, test.want)
		}
	}
}

// Rows with equal values sort the same, or SDKs that merge ranges would tear them apart.
func TestEqualArraysHaveOneHash(t *testing.T) {
	want := distinctHash(documentValue([]byte(`[0,{"a":10,"b":[]}]`)))
	for _, text := range []string{
		`[-0,{"a":10,"b":[]}]`, `[0.0,{"b":[],"a":1e1}]`,
		`[-0.0, {"b" : [ ], "\u0061":10}]`,
	} {
		if got := distinctHash(documentValue([]byte(text))); got != want {
			t.Errorf("%s: hash %x, want %x", text, got, want)
		}
	}
}

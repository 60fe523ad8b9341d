//go:build never

package main

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/azidentity" // the suite's own, so that go.sum has them
	_ "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

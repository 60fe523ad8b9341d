// The CloudEvents SDK of the CNCF against the webhooks of the outbox: a module of its own, so that
// the library does not require the SDK.
module github.com/millrace/changefeed/conformance/cloudevents

go 1.26.0

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/millrace/changefeed v0.0.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
)

replace github.com/millrace/changefeed => ../..

// The manifests of deploy against the types of Kubernetes, KEDA and the Prometheus operator, and the Dockerfiles
// against the parser of BuildKit: a module of its own, so that the library requires none of them.
module github.com/millrace/changefeed/conformance/deploy

go 1.26.0

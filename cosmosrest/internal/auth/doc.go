// Package auth authenticates the sender of a request, by the signature of a master key or by a token of Microsoft
// Entra ID, and decides which actions a role grants. The package does not depend on the store: if a request names its
// resource by resource ids, the caller passes the names.
package auth

// Package function runs the functions of an Azure Functions app with a custom handler: a batch of changes is an
// invocation of a function.
package function

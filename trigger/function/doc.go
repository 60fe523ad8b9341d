// Package function runs the functions of an Azure Functions app with a custom handler: a batch of changes is an
// invocation of a function. [ReadApp] reads the app from its directory, and obeys or refuses each of its settings.
package function

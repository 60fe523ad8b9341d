// Package child has what the handlers share that start programs: the group of a process, how it ends, and what it says.
package child

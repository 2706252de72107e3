// Package cli has what the commands of listproxy share: exit codes, flags that several of them
// have, tables, and what a terminal can show. It knows no command.
package cli

// Package cli has what the commands of listproxy share: exit codes, mistakes on the command line
// and what was probably meant, flags that several commands have, tables, and what a terminal can
// show. It knows no command.
package cli

// Command tool makes sure that a tool which tests use is in bin/, and prints its path: helm or promtool.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/listproxy/listproxy/test/controlplane"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	provide := map[string]func(context.Context, func(string)) (string, error){
		"helm": controlplane.Helm, "promtool": controlplane.Promtool,
	}
	if len(args) != 1 || provide[args[0]] == nil {
		return fmt.Errorf("say which tool: helm or promtool, not %q", args)
	}
	path, err := provide[args[0]](ctx, func(line string) { _, _ = fmt.Fprintln(os.Stderr, line) })
	if err == nil {
		fmt.Println(path)
	}
	return err
}

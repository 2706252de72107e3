// Command tool makes sure that a tool which tests use is in bin/, and prints its path: helm, promtool,
// or an older kube-apiserver, as kube-apiserver-1.35.4.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

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
	if len(args) != 1 {
		return fmt.Errorf("say which tool: helm, promtool or kube-apiserver-VERSION, not %q", args)
	}
	obtain := provide[args[0]]
	if version, is := strings.CutPrefix(args[0], "kube-apiserver-"); is {
		obtain = func(ctx context.Context, log func(string)) (string, error) {
			return controlplane.KubeAPIServer(ctx, log, version)
		}
	}
	if obtain == nil {
		return fmt.Errorf("say which tool: helm, promtool or kube-apiserver-VERSION, not %q", args)
	}
	path, err := obtain(ctx, func(line string) { _, _ = fmt.Fprintln(os.Stderr, line) })
	if err == nil {
		fmt.Println(path)
	}
	return err
}

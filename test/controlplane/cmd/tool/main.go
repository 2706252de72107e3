// Command tool makes sure that a tool which tests use is in bin/, and prints its path: helm,
// promtool, other projects' tests, or another kube-apiserver, as kube-apiserver-1.35.4.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("say which tool: helm, promtool, kubernetes.test, controller-runtime-PACKAGE.test or kube-apiserver-VERSION, not %q", args)
	}
	log := func(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }
	var path string
	var err error
	if version, is := strings.CutPrefix(args[0], "kube-apiserver-"); is {
		path, err = binaries.KubeAPIServer(ctx, log, version)
	} else {
		path, err = binaries.Tool(ctx, log, args[0])
	}
	if err == nil {
		fmt.Println(path)
	}
	return err
}

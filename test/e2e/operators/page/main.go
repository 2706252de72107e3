// Command page looks at the status page of a real listproxy, under load, with a real browser: on a
// phone and at a desk, in the light and in the dark. It fails if the page is wider than the
// screen, has an error in the console, or does not renew itself. It needs Chromium, which is why
// it is no test of go test: make test-page CHROMIUM=/path.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// patience bounds all of it.
const patience = 10 * time.Minute

func main() {
	chromium := flag.String("chromium", "", "the browser")
	dir := flag.String("dir", "bin/statusz", "directory for pictures")
	pods := flag.Int("pods", 500, "how many pods there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, patience)
	err := run(ctx, *chromium, *dir, *pods)
	cancel()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "page:", err)
	}
	code := 0
	if err != nil {
		code = 1
	}
	os.Exit(harness.Verdict(code))
}

func run(ctx context.Context, chromium, dir string, pods int) (err error) {
	if chromium == "" {
		return errors.New("name the browser: make test-page CHROMIUM=/usr/bin/chromium")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Log: func(line string) { fmt.Println(line) }})
	if err != nil {
		return err
	}
	defer cp.Stop()
	if err := workload.Fill(ctx, cp, workload.Pods{Nodes: 50}, pods, func(int) {}); err != nil {
		return err
	}
	proxy, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--eager", "pods,nodes,deployments.v1.apps,configmaps", "--history-window", "20s", "--log-level", "info"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := startLoad(ctx, cp, proxy); err != nil {
		return err
	}
	b, err := openBrowser(ctx, chromium)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var errs []error
	for _, s := range screens() {
		errs = append(errs, shoot(ctx, b, dir, "", proxy.AdminURL()+"/statusz", s, expected{"✓ healthy", 4}))
	}
	return errors.Join(append(errs, lookAtExtremes(ctx, b, dir))...)
}

// shoot looks at a page, and keeps the picture.
func shoot(ctx context.Context, b *browser, dir, prefix, url string, s screen, want expected) error {
	picture, err := look(ctx, b, url, s, want)
	if err != nil {
		err = fmt.Errorf("%s%s: %w", prefix, s.name, err)
	}
	if picture == nil {
		return err
	}
	path := filepath.Join(dir, prefix+s.name+".png")
	if failed := os.WriteFile(path, picture, 0o600); failed != nil {
		return errors.Join(err, failed)
	}
	fmt.Printf("%s: %d kB\n", path, len(picture)/1000)
	return err
}

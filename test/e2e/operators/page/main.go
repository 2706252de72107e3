// Command page takes pictures of the status page of a real listproxy, under load, with a real browser:
// on a phone and at a desk, in the light and in the dark. Look at them: make test-page
// CHROMIUM=/path.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
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
	poll.Pause(ctx, 20*time.Second) // so that there is something to see
	for _, width := range []int{360, 1280} {
		for scheme, name := range []string{"dark", "light"} { // as Chromium numbers them
			path, err := filepath.Abs(filepath.Join(dir, fmt.Sprintf("%d-%s.png", width, name)))
			if err != nil {
				return err
			}
			shot := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", // #nosec G204 -- the operator's own choice
				"--user-data-dir="+filepath.Join(dir, "profile"), fmt.Sprintf("--window-size=%d,1260", width),
				fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), "--screenshot="+path, proxy.AdminURL()+"/statusz")
			if said, err := shot.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, said)
			}
			fmt.Println(path)
		}
	}
	return nil
}

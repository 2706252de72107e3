// Command controlplane runs etcd and kube-apiserver on loopback until it is told to stop, and prints the kubeconfigs to use
// them with. It takes no arguments. Tests use package test/controlplane directly.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/listproxy/listproxy/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	log := func(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }
	cp, err := controlplane.Start(ctx, controlplane.Options{Log: log})
	if err != nil {
		return err
	}
	defer cp.Stop()
	describe(cp)
	<-ctx.Done()
	log("stopping, and removing " + cp.Dir())
	return nil
}

// describe prints what runs and how to use it.
func describe(cp *controlplane.ControlPlane) {
	fmt.Printf("\nkube-apiserver  %s\netcd            %s\nlogs            %s\n\n", cp.URL(), cp.EtcdURL(), filepath.Join(cp.Dir(), "*.log"))
	fmt.Print("Be one of the users in another terminal, who may:\n\n")
	for _, u := range controlplane.Users() {
		fmt.Printf("  # %s\n  export KUBECONFIG=%s\n", u.Rights, cp.KubeconfigPath(u.Name))
	}
	fmt.Printf("\nThen, for example:\n\n  %[1]s get namespaces\n  %[1]s run hello --image=hello\n\nCtrl-C stops everything.\n",
		cp.Binaries().Kubectl)
}

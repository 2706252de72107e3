package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// dir is the only directory on the machine itself, outside of the Linux namespaces, that the cluster writes to. It holds
	// keys.
	dir = "/var/lib/listproxy-cluster"
	// cgroupName is the control group of all pods, below /sys/fs/cgroup or each of its controllers.
	cgroupName = "listproxy-cluster"
	// lockSocket is an abstract socket. Only one process can listen on it, so only one cluster runs on the machine. The kernel
	// removes it when the process ends.
	lockSocket = "@listproxy-cluster"
	// insideEnv is the environment variable that is set for processes in the cluster's namespaces.
	insideEnv = "LISTPROXY_CLUSTER_INSIDE"
	// diskGB is the free space that builds and the cluster need.
	diskGB = 15
)

// Inside reports whether this process is in the cluster's namespaces.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// missing describes what this machine lacks.
func missing() (descriptions []string) {
	add := func(description string) { descriptions = append(descriptions, description) }
	if os.Geteuid() != 0 {
		add("root, since a kubelet mounts, and makes namespaces and control groups (sudo --preserve-env=PATH make …)")
	}
	packages := map[string]string{"go": "Go", "gcc": "gcc", "git": "git", "ip": "iproute2", "nft": "nftables", "mount": "util-linux"}
	for program, name := range packages {
		if _, err := exec.LookPath(program); err != nil {
			add(program + ", of the package " + name)
		}
	}
	if found, _ := filepath.Glob("/usr/include/seccomp.h"); found == nil {
		add("/usr/include/seccomp.h, of the package libseccomp-dev: runc is built with it")
	}
	if len(cgroups()) == 0 {
		add("control groups below /sys/fs/cgroup")
	}
	for _, path := range []string{filepath.Dir(dir), "."} {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil || disk.Bavail*uint64(disk.Bsize) < diskGB<<30 { // #nosec G115 -- of a disk
			add(fmt.Sprintf("%d GB of disk for %s", diskGB, path))
		}
	}
	slices.Sort(descriptions)
	return descriptions
}

// Enter builds and packs the cluster's programs, runs this program again inside the cluster's namespaces, with the same
// arguments, and returns its exit code. If ctx ends, Enter stops the program and returns 0. Before Enter returns, it removes
// the cluster. ports is the number of ports that it opens outside for [Forward].
func Enter(ctx context.Context, log func(string), ports int) (code int, err error) {
	if lacking := missing(); len(lacking) > 0 {
		return 1, fmt.Errorf("this machine lacks:\n  %s", strings.Join(lacking, "\n  "))
	}
	if err := build(ctx, log); err != nil {
		return 1, err
	}
	lock, err := net.Listen("unix", lockSocket)
	if err != nil {
		return 1, fmt.Errorf("another cluster runs on this machine: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := cleanUp(); err != nil { // what a killed process has left behind
		return 1, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 1, err
	}
	log("packing images and the chart")
	if err := pack(ctx); err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...) // #nosec G204 G702 -- this very program
	cmd.Env = append(os.Environ(), insideEnv+"=1", "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// The program inherits sockets that listen in the network outside.
	for range ports {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return 1, err
		}
		file, err := l.File()
		if err != nil {
			return 1, err
		}
		_ = l.Close()
		defer func() { _ = file.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS, // keeps mounts from the outside
		Setpgid:      true,                // Ctrl-C goes to this process only, which then ends ctx
		Pdeathsig:    syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig comes when the thread ends that started the process
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ctx.Err() != nil {
			return 0, nil
		}
		return max(exit.ExitCode(), 1), nil // -1 if a signal ended it
	}
	return 0, err
}

// cgroups returns the paths of the cluster's control groups: one, or with version 1 one for each controller.
func cgroups() (paths []string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if mountPoint, filesystem := fields[1], fields[2]; strings.HasPrefix(filesystem, "cgroup") {
			paths = append(paths, filepath.Join(mountPoint, cgroupName))
		}
	}
	return paths
}

// cleanUp removes the control groups and the directory. It tries again while processes of the namespaces are ending.
func cleanUp() error {
	return poll.Try(context.Background(), time.Minute, time.Second/10, "removing the cluster", func() error {
		var errs error
		for _, root := range cgroups() {
			var nested []string
			_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					nested = append(nested, path)
				}
				return nil
			})
			for _, path := range slices.Backward(nested) {
				errs = errors.Join(errs, syscall.Rmdir(path))
			}
		}
		return errors.Join(errs, os.RemoveAll(dir))
	})
}

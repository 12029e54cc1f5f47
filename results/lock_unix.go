//go:build unix

package results

import (
	"errors"
	"os"
	"syscall"
)

// lockFileNow takes an exclusive lock that ends with the process; errHeld where another
// process has it.
func lockFileNow(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Registers of the LM3S6965 and of the Cortex-M3 that this firmware uses (data sheet of the LM3S6965). */
#ifndef DWELL_BOARD_H
#define DWELL_BOARD_H

#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))

/* System control. */
#define SYSCTL_RIS REGISTER(0x400fe050)
#define SYSCTL_RIS_PLL_LOCKED (1u << 6)
#define SYSCTL_RCC REGISTER(0x400fe060)
#define SYSCTL_RCC_SYSDIV_SHIFT 23
#define SYSCTL_RCC_USESYSDIV (1u << 22)
#define SYSCTL_RCC_PWRDN (1u << 13)
#define SYSCTL_RCC_BYPASS (1u << 11)
#define SYSCTL_RCC_XTAL_SHIFT 6
#define SYSCTL_RCC_XTAL_8MHZ 0xeu
#define SYSCTL_RCC_OSCSRC_MASK (3u << 4)
#define SYSCTL_RCGC0 REGISTER(0x400fe100)
#define SYSCTL_RCGC0_WATCHDOG (1u << 3)
#define SYSCTL_RCGC1 REGISTER(0x400fe104)
#define SYSCTL_RCGC1_UART0 (1u << 0)
#define SYSCTL_RCGC1_TIMER0 (1u << 16)
#define SYSCTL_RCGC2 REGISTER(0x400fe108)
#define SYSCTL_RCGC2_GPIOA (1u << 0)
#define SYSCTL_RCGC2_EMAC (1u << 28)
#define SYSCTL_RCGC2_EPHY (1u << 30)

/* Port A: pins 0 and 1 are UART 0. */
#define GPIOA_AFSEL REGISTER(0x40004420)
#define GPIOA_DEN REGISTER(0x4000451c)
#define GPIOA_UART0_PINS 3u

/* UART 0. */
#define UART0_DR REGISTER(0x4000c000)
#define UART0_FR REGISTER(0x4000c018)
#define UART0_FR_TX_FULL (1u << 5)
#define UART0_IBRD REGISTER(0x4000c024)
#define UART0_FBRD REGISTER(0x4000c028)
#define UART0_LCRH REGISTER(0x4000c02c)
#define UART0_LCRH_8N1_FIFO 0x70u
#define UART0_CTL REGISTER(0x4000c030)
#define UART0_CTL_ENABLE 0x301u

/* Timer 0, as a 32-bit timer. */
#define TIMER0_CFG REGISTER(0x40030000)
#define TIMER0_CFG_32_BITS 0u
#define TIMER0_TAMR REGISTER(0x40030004)
#define TIMER0_TAMR_PERIODIC 2u
#define TIMER0_CTL REGISTER(0x4003000c)
#define TIMER0_CTL_ENABLE (1u << 0)
#define TIMER0_IMR REGISTER(0x40030018)
#define TIMER0_ICR REGISTER(0x40030024)
#define TIMER0_INT_TIMEOUT (1u << 0)
#define TIMER0_TAILR REGISTER(0x40030028)
#define TIMER0_IRQ 19

/* Watchdog timer: a 32-bit counter of the system clock. */
#define WATCHDOG_LOAD REGISTER(0x40000000)
#define WATCHDOG_VALUE REGISTER(0x40000004)
#define WATCHDOG_CTL REGISTER(0x40000008)
#define WATCHDOG_CTL_COUNT (1u << 0)

/* Ethernet controller. */
#define ETHERNET_RIS REGISTER(0x40048000)
#define ETHERNET_IACK REGISTER(0x40048000)
#define ETHERNET_IM REGISTER(0x40048004)
#define ETHERNET_INT_RX (1u << 0)
#define ETHERNET_INT_OVERRUN (1u << 3)
#define ETHERNET_INT_RX_ERROR (1u << 4)
#define ETHERNET_INT_ALL 0x7fu
#define ETHERNET_RCTL REGISTER(0x40048008)
#define ETHERNET_RCTL_ENABLE (1u << 0)
#define ETHERNET_RCTL_BAD_CRC (1u << 3)
#define ETHERNET_RCTL_RESET_FIFO (1u << 4)
#define ETHERNET_TCTL REGISTER(0x4004800c)
#define ETHERNET_TCTL_ENABLE (1u << 0)
#define ETHERNET_TCTL_PAD (1u << 1)
#define ETHERNET_TCTL_CRC (1u << 2)
#define ETHERNET_TCTL_DUPLEX (1u << 4)
#define ETHERNET_DATA REGISTER(0x40048010)
#define ETHERNET_IA0 REGISTER(0x40048014)
#define ETHERNET_IA1 REGISTER(0x40048018)
#define ETHERNET_NP REGISTER(0x40048034)
#define ETHERNET_NP_MASK 0x3fu
#define ETHERNET_TR REGISTER(0x40048038)
#define ETHERNET_TR_NEW (1u << 0)
#define ETHERNET_IRQ 42

/* Cortex-M3. */
#define SYSTICK_CTRL REGISTER(0xe000e010)
#define SYSTICK_CTRL_ENABLE (1u << 0)
#define SYSTICK_CTRL_INTERRUPT (1u << 1)
#define SYSTICK_CTRL_SYSTEM_CLOCK (1u << 2)
#define SYSTICK_LOAD REGISTER(0xe000e014)
#define SYSTICK_VALUE REGISTER(0xe000e018)
#define SYSTICK_MAX 0xffffffu
#define NVIC_ENABLE(n) REGISTER(0xe000e100 + 4 * (n))
#define SCB_ICSR REGISTER(0xe000ed04)
#define SCB_ICSR_SYSTICK_PENDING (1u << 26)
#define SCB_AIRCR REGISTER(0xe000ed0c)
#define SCB_AIRCR_RESET 0x05fa0004u

/* Disables interrupts and returns the earlier state. */
static inline uint32_t interrupts_disable(void)
{
	uint32_t state;

	__asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(state) : : "memory");
	return state;
}

/* Restores the state of interrupts. */
static inline void interrupts_restore(uint32_t state)
{
	__asm__ volatile("msr primask, %0" : : "r"(state) : "memory");
}

#endif
